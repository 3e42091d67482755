"""The verbs and adjectives of the built-in corpus, as tables."""

# A row: English (with its irregular past after a colon) | Spanish infinitive | subjects | objects | places | flags.
# Spanish may end in "+a", "+de", "+en": the preposition of the object. Flags: state (no -ing form; the past is the
# Spanish imperfect), still (no -ing form), plain (no personal a before animals), order (serves as an imperative).
TRANSITIVE = """
eat:ate | comer | person | meal | living | order
eat:ate | comer | pet rodent farm | apple carrot bread cheese meat | garden |
drink:drank | beber | grown | drink grownup | living | order
drink:drank | beber | child baby | drink | living |
drink:drank | beber | pet farm wild | water milk | garden forest |
cook | cocinar | grown | vegetable dish cooked | kitchen restaurant garden | order
cut:cut | cortar | grown | fruit vegetable baked bread cheese chocolate rope | kitchen garden |
make:made | hacer | grown | baked bread cold juice lemonade dress doll | kitchen |
buy:bought | comprar | person | goods bicycle horse furnishing flower | trade | plain order
sell:sold | vender | grown | goods wheels bicycle farm house boat furnishing flower | trade | plain order
wash | lavar | grown | cloth vessel tableware fruit vegetable wheels pet | garden kitchen | order
clean | limpiar | grown | room furnishing opening fragile device wheels house | | order
paint | pintar | grown | home structure opening seat surface toy boat flower | garden | plain
draw:drew | dibujar | child artist painter | animal insect tree flower house castle map boat star | school park | plain
read:read | leer | person | text press | library park kitchen garden bedroom train | order
write:wrote | escribir | person | text song | library kitchen office bedroom | order
open | abrir | person | opening container bottle wardrobe gift letter umbrella | | order still
close | cerrar | person | opening container bottle wardrobe umbrella book | | order still
break:broke | romper | person | vessel plate fragile window toy clock | | still
repair | reparar | grown | device wheels bicycle boat seat surface toy instrument | | order
build:built | construir | grown | home public structure boat | city village |
find:found | encontrar | person | thing pet insect instrument tool | outdoors indoors | still
lose:lost | perder | person | small belonging ring | trade park beach | still
look for | buscar | person | thing person pet | outdoors indoors |
hide:hid | esconder | person | gift coin key letter jewel text box | garden bedroom | order
wear:wore | llevar | person | clothes | |
need | necesitar | person | tool device cloth writing container key blanket umbrella map | | state plain
want | querer | person | meal toy cloth bicycle gift instrument | | state plain
have:had | tener | person | goods pet farm bicycle wheels family idea problem question answer | | state plain
see:saw | ver | person | anyone animal insect star heaven transport boat movie home public | | still
see:saw | ver | pet wild bird | person animal insect | forest garden park | still
watch | mirar | person | animal heaven star boat photo map child baby | outdoors |
hear:heard | oír | person | tune bird wild dog radio message instrument | garden bedroom forest | still
listen to | escuchar | person | tune radio family teacher singer bird | kitchen bedroom garden | order
visit | visitar | person | family home public town island | |
help | ayudar+a | person | person | | order
call | llamar+a | person | family adult | | order
know:knew | conocer | person | family adult town song museum island story hotel | | state
wait for | esperar | person | family transport friend doctor waiter letter | station airport park |
love | amar | person | family town | | state
chase | perseguir | dog cat pet wild fox wolf | animal thief | garden field forest |
bite:bit | morder | dog puppy snake wolf horse monkey | person animal | garden forest | still
feed:fed | alimentar | person | pet farm poultry baby elephant monkey | garden field |
catch:caught | atrapar | child cat fox eagle | rodent insect rabbit bird ball | garden field | still
drive:drove | conducir | grown | wheels bus | city |
send:sent | enviar | person | text gift photo | | order
bring:brought | traer | person | meal drink grownup belonging blanket | |
plant | plantar | grown | tree flower vegetable strawberry | garden field park |
pick | recoger | person | fruit flower vegetable | garden field | order
choose:chose | elegir | person | cloth jewel meal toy text movie gift | shop market |
sing:sang | cantar | person | song | theater church school park garden | order
play | tocar | person | instrument | theater school garden | order
win:won | ganar | person | contest | |
study | estudiar | person | lesson problem map dictionary poem | school library bedroom | order
explain | explicar | grown | thought answer poem message | school | order
solve | resolver | person | problem | | order
pay:paid | pagar | grown | bill | restaurant hotel market | order
turn on | encender | person | light radio computer | bedroom kitchen office | order still
turn off | apagar | person | light radio computer phone | bedroom kitchen office | order still
enter:entered | entrar+en | person | home public shop room castle forest | | still
"""

# The same columns. More flags: to (the place is a destination), with (may have a companion), fast and well (which
# adverbs of manner fit), time (the hour fits).
INTRANSITIVE = """
sit:sat | sentarse | anyone pet | | seat | still
get up:got up | levantarse | person | | | still time
go to bed:went to bed | acostarse | person | | | still time
sleep:slept | dormir | anyone pet | | house bedroom garden hotel |
sleep:slept | dormir | farm rodent wild | | garden forest field |
rest | descansar | person pet | | living beach |
rest | descansar | farm wild | | forest field |
run:ran | correr | person pet farm wild | | outdoors | with fast
walk | caminar | person pet farm wild | | outdoors city village | with fast
swim:swam | nadar | person poultry turtle frog | | waters | with fast
fly:flew | volar | bird insect plane | | | fast
sing:sang | cantar | person bird | | garden park church theater bathroom | with well
dance | bailar | person | | square park theater kitchen | with well
cry | llorar | child baby family princess | | bedroom kitchen school park |
smile | sonreír | anyone | | |
work | trabajar | grown | | office hospital school library market restaurant garden field | with well
play | jugar | child pet | | park garden square school beach bedroom | with
arrive | llegar | person transport | | | still time
go:went | ir | person | | destination | still to
come:came | venir | person | | house office village city school | still to
return | volver | person | | destination | still to
live | vivir | family adult | | house city village castle palace island hotel | state with
stay | quedarse | person pet | | house hotel hospital kitchen village | still with
fall:fell | caerse | child baby vessel plate clock book | | | still
talk | hablar | person | | kitchen office park garden restaurant | with
wait | esperar | person | | station airport office park | with
shine:shone | brillar | heaven star lamp ring crown | | |
grow:grew | crecer | tree flower vegetable | | garden field |
start | empezar | show race | | | still time
end | terminar | show race | | | still time
bark | ladrar | dog puppy | | garden park |
"""

# Verb with a thing and a person: "gave the book to the girl", "le dio el libro a la niña".
DATIVE = """
give:gave | dar | person | belonging fruit flower
show | mostrar | person | belonging text device photo
send:sent | enviar | person | letter message gift photo
bring:brought | traer | person | gift drink blanket book chair cake
sell:sold | vender | farmer baker neighbor man woman uncle | fruit bread cheese horse egg cake car bicycle house
read:read | leer | grown | text newspaper
explain | explicar | grown | lesson problem idea
"""

# Verb with a thing and the place where it comes to be.
PLACING = """
put:put | poner | person | small text vessel tableware writing press fruit
leave:left | dejar | person | small text press cloth container
find:found | encontrar | person | small text cloth writing jewel | | still
hide:hid | esconder | person | jewel letter coin key gift
"""

# English, Spanish, copula (s: ser, e: estar, -: never after "be"), classes of nouns, c: has a comparative in -er
ADJECTIVE = """
red rojo s color
black negro s color beast
white blanco s color beast
yellow amarillo s color
green verde s color
blue azul s color
brown marrón s color beast
gray gris s color beast
big grande s size c
small pequeño s size c
old viejo s size c
new nuevo s new c
expensive caro s price
cheap barato s price c
beautiful hermoso s pretty
tall alto s person structure tree c
short bajo s person c
young joven s person c
strong fuerte s person beast c
thin delgado s person c
rich rico s adult family c
poor pobre s adult
kind amable s person c
famous famoso s adult museum song book movie
clever listo s person c
brave valiente s person c c
honest honrado s person
funny gracioso s person story movie c
serious serio s person problem
elegant elegante s adult clothes hotel restaurant
shy tímido s child family
patient paciente s person
lazy perezoso s person pet c
wild salvaje - beast bird
fast rápido s horse transport wheels boat rabbit bicycle c
dangerous peligroso s wild waters forest mountain idea
gentle manso s farm pet elephant c
fat gordo s pet farm king c
tired cansado e anyone beast
sad triste e anyone
happy feliz e anyone
sick enfermo e anyone pet
busy ocupado e adult family
angry enfadado e person
nervous nervioso e person
alone solo e child family p
worried preocupado e person
surprised sorprendido e person
delicious delicioso s food
fresh fresco s fruit vegetable bread milk juice c
sweet dulce s fruit cake honey c
hot caliente e cooked drinkhot pizza
cold frío e drinkable soup
empty vacío e vessel container room wardrobe
full lleno e vessel container
dirty sucio e cloth vessel tableware wheels room opening
broken roto e vessel fragile device toy seat
open abierto e opening shop container museum
closed cerrado e opening shop container museum
heavy pesado s container furnishing ladder piano c
light ligero s container bicycle cloth c
long largo s text song bridge river class rope c
interesting interesante s text press museum city lesson movie idea
boring aburrido s text press class movie concert
difficult difícil s thought answer song
easy fácil s thought c
important importante s letter message lesson idea question answer
quiet tranquilo s open beach island town library c
modern moderno s public device home
ancient antiguo s castle palace church bridge tower wall jewel
dark oscuro s room forest castle c
wide ancho s river bridge bed c
deep profundo s waters c
round redondo s table mirror box tower
useful útil s tool device dictionary map
wooden de_madera - furnishing toy box bridge door ladder spoon
golden dorado - jewel key cup
silver de_plata - jewel coin spoon
"""

ADJECTIVE_GROUPS = {
    "color": "cloth container vessel toy wheels bicycle opening seat boat writing umbrella flower house",
    "size": "animal home public furnishing container structure tree boat tool town",
    "new": "cloth thing device wheels bicycle furnishing house bridge song movie",
    "price": "cloth jewel device wheels bicycle furnishing instrument hotel restaurant camera",
    "pretty": "clothes flower home island beach city princess queen butterfly song horse castle bird",
    "drinkhot": "tea coffee milk water",
    "drinkable": "drink tea coffee",
}
