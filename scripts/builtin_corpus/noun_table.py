"""The nouns of the built-in corpus, as a table, and the groups of their classes."""

# A row: English noun, Spanish noun, gender (F: feminine, but "el" because it begins with a stressed a), and where
# irregular the plurals, "en:" and "es:". A class may be followed by flags: mass (no plural), own (takes "my").
NOUNS = """
[child]
boy niño m
girl niña f
[infant own]
baby bebé m
[parent own single]
father padre m
mother madre f
[kin own]
brother hermano m
sister hermana f
son hijo m
daughter hija f
grandfather abuelo m
grandmother abuela f
uncle tío m
aunt tía f
cousin primo m
friend amigo m
neighbor vecino m
[adult]
man hombre m en:men
woman mujer f en:women
teacher maestra f
student estudiante m
doctor médico m
nurse enfermera f
farmer granjero m
baker panadero m
king rey m
queen reina f
prince príncipe m
princess princesa f
soldier soldado m
singer cantante f
dancer bailarina f
painter pintor m
writer escritora f
waiter camarero m
pilot piloto m
thief ladrón m en:thieves
sailor marinero m
actor actor m
artist artista f
witch bruja f
fairy hada F
[pet own]
dog perro m
cat gato m
rabbit conejo m
puppy cachorro m
kitten gatito m
[farm own]
horse caballo m
cow vaca f
pig cerdo m
[rodent]
mouse ratón m en:mice
squirrel ardilla f
frog rana f
turtle tortuga f
[wild]
lion león m
tiger tigre m
elephant elefante m
monkey mono m
bear oso m
wolf lobo m en:wolves
fox zorro m
snake serpiente f
[bird]
bird pájaro m
eagle águila F
parrot loro m
[poultry]
hen gallina f
duck pato m
swan cisne m
[insect]
butterfly mariposa f
bee abeja f
[fruit own]
apple manzana f
orange naranja f
banana plátano m
pear pera f
strawberry fresa f
lemon limón m
[vegetable own]
tomato tomate m
potato patata f
carrot zanahoria f
[dish own]
egg huevo m
[cooked mass own]
meat carne f
rice arroz m
soup sopa f
[baked own]
cake pastel m
pizza pizza f
[bread mass own]
bread pan m
[cold own]
sandwich bocadillo m
salad ensalada f
[spread mass own]
cheese queso m
honey miel f
chocolate chocolate m
[drink mass own]
milk leche f
water agua F
juice zumo m
lemonade limonada f
[grownup mass own]
tea té m
coffee café m
wine vino m
[cloth own]
shirt camisa f
dress vestido m
coat abrigo m
hat sombrero m
shoe zapato m
skirt falda f
jacket chaqueta f
sock calcetín m
boot bota f
[jewel own]
ring anillo m
necklace collar m
crown corona f
[text own]
book libro m
letter carta f
poem poema m
story cuento m
message mensaje m
[press own]
newspaper periódico m
dictionary diccionario m
[tune own]
song canción f
[container own]
box caja f
bag bolsa f
basket cesta f
suitcase maleta f
[vessel own]
bottle botella f
cup taza f
glass vaso m
[tableware own]
plate plato m
spoon cuchara f
knife cuchillo m en:knives
[fragile own]
mirror espejo m
[light own]
lamp lámpara f
candle vela f
[device own]
computer ordenador m
phone teléfono m
camera cámara f
radio radio f
clock reloj m
[small own]
key llave f
coin moneda f
umbrella paraguas m es:paraguas
gift regalo m
blanket manta f
photo foto f
map mapa m
[writing own]
pencil lápiz m
pen bolígrafo m
notebook cuaderno m
[toy own]
toy juguete m
doll muñeca f
ball pelota f
[tool own]
ladder escalera f
axe hacha F
rope cuerda f
sword espada f
[instrument own]
guitar guitarra f
piano piano m
violin violín m
harp arpa F
[surface own]
table mesa f
desk escritorio m
[seat own]
chair silla f
sofa sofá m
bench banco m
bed cama f
[furniture own]
wardrobe armario m
[opening]
door puerta f
window ventana f
[wheels own]
car coche m
truck camión m
[bicycle own]
bicycle bicicleta f
[transport]
bus autobús m
train tren m
plane avión m
[boat own]
boat barco m
[room own]
kitchen cocina f
bathroom baño m
bedroom dormitorio m
office oficina f
[home own]
house casa f
[building]
school escuela f
hospital hospital m
church iglesia f
library biblioteca f
museum museo m
theater teatro m
restaurant restaurante m
hotel hotel m
castle castillo m
palace palacio m
[structure]
tower torre f
bridge puente m
wall muro m
[shop]
market mercado m
shop tienda f
bakery panadería f
[hub]
station estación f
airport aeropuerto m
[town]
city ciudad f
village pueblo m
[open]
park parque m
garden jardín m
square plaza f
forest bosque m
field campo m
[ground]
beach playa f
island isla f
mountain montaña f
[waters]
river río m
lake lago m
[tree]
tree árbol m
[flower own]
flower flor f
rose rosa f
[heaven single]
sun sol m
moon luna f
[star]
star estrella f
[contest]
race carrera f
prize premio m
[show]
concert concierto m
movie película f
class clase f
[thought own]
problem problema m
idea idea f
lesson lección f
[answer own]
question pregunta f
answer respuesta f
[account own]
bill cuenta f
"""

GROUPS = {
    "anyone": "child infant parent kin adult",
    "person": "child parent kin adult",
    "family": "parent kin",
    "grown": "family adult",
    "animal": "pet farm rodent wild bird poultry",
    "beast": "pet farm wild",
    "food": "fruit vegetable dish cooked baked bread cold spread",
    "meal": "fruit dish cooked baked bread cold spread",
    "clothes": "cloth jewel",
    "thing": "clothes text press container vessel tableware device small writing toy",
    "belonging": "cloth text container small writing toy jewel",
    "goods": "thing food drink light instrument tool",
    "furnishing": "surface seat furniture",
    "indoors": "kitchen bathroom bedroom office house school hospital library hotel",
    "living": "kitchen bedroom house garden park restaurant",
    "outdoors": "park garden square forest field beach",
    "trade": "market shop bakery station airport city village",
    "public": "school hospital church library museum theater restaurant hotel castle palace",
    "destination": "home public shop hub town park beach island river lake forest mountain",
    "landmark": "home public hub shop bridge tower river lake tree",
}
